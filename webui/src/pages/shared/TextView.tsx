// Text with line numbers. Two blocks of text side by side rather than a row per line: a file of a megabyte stays quick.
import { useMemo } from "react";

export function TextView({ text, label }: { text: string; label: string }) {
  const numbers = useMemo(() => {
    const total = text.split("\n").length - (text.endsWith("\n") ? 1 : 0);
    return Array.from({ length: Math.max(total, 1) }, (_, place) => place + 1).join("\n");
  }, [text]);
  return (
    <div className="text-view" role="region" aria-label={label} tabIndex={0}>
      <pre className="text-lines" aria-hidden="true">
        {numbers}
      </pre>
      <pre className="text-body">{text}</pre>
    </div>
  );
}
