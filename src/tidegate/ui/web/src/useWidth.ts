import { type RefObject, useLayoutEffect, useRef, useState } from "react";

/** The width of an element in pixels, as it changes; 0 until the element is there, which is before anything is painted. */
export function useWidth<T extends Element>(): [RefObject<T | null>, number] {
  const element = useRef<T>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const own = element.current;
    if (own === null) return;
    const look = () => {
      setWidth(Math.round(own.getBoundingClientRect().width));
    };
    look();
    const observer = new ResizeObserver(look);
    observer.observe(own);
    return () => {
      observer.disconnect();
    };
  }, []);
  return [element, width];
}
