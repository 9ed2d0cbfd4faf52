import { type ReactNode, useEffect, useRef } from "react";

/** What a page opens beside itself. It takes the focus, Escape closes it, and the focus goes back to where it was. */
export function Panel({ name, onClose, children }: { name: string; onClose: () => void; children: ReactNode }) {
  const section = useRef<HTMLElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    const own = section.current;
    own?.focus({ preventScroll: true });
    own?.scrollIntoView({ block: "nearest" });
    return () => {
      const active = document.activeElement;
      // where the focus is elsewhere by then, somebody has moved it
      if (active !== document.body && !own?.contains(active)) return;
      if (before instanceof SVGElement || before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <section
      className="panel"
      aria-label={name}
      tabIndex={-1}
      ref={section}
      onKeyDown={(event) => {
        if (event.key === "Escape") onClose();
      }}
    >
      {children}
    </section>
  );
}
