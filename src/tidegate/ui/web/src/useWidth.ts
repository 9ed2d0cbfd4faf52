import { type RefObject, useEffect, useRef, useState } from "react";

/** The width of an element in pixels, as it changes; `first` until it is known. */
export function useWidth<T extends Element>(first: number): [RefObject<T | null>, number] {
  const element = useRef<T>(null);
  const [width, setWidth] = useState(first);
  useEffect(() => {
    if (element.current === null) return;
    const observer = new ResizeObserver(([entry]) => {
      if (entry !== undefined && entry.contentRect.width > 0) setWidth(Math.round(entry.contentRect.width));
    });
    observer.observe(element.current);
    return () => {
      observer.disconnect();
    };
  }, []);
  return [element, width];
}
