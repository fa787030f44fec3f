// Notes that people write. HTML in them is shown as the text it is, no images from other hosts, links only to http, https and mail, opened apart.
import { Suspense, lazy } from "react";

const ReactMarkdown = lazy(() => import("react-markdown"));

export function safeAddress(address: string): string {
  return /^(https?:|mailto:)/i.test(address) ? address : "";
}

export function Markdown({ text }: { text: string }) {
  return (
    <div className="markdown">
      <Suspense fallback={<p className="muted">{text}</p>}>
        <ReactMarkdown
          urlTransform={safeAddress}
          components={{
            a: ({ href, children }) =>
              href ? (
                <a href={href} target="_blank" rel="noopener noreferrer">
                  {children}
                </a>
              ) : (
                <span>{children}</span>
              ),
            // The address would tell another host who reads the note.
            img: ({ alt }) => <span className="muted">[picture: {alt || "no description"}]</span>,
          }}
        >
          {text}
        </ReactMarkdown>
      </Suspense>
    </div>
  );
}
