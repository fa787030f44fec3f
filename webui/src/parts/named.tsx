// The name of a thing as a link to it, clipped where it is long, with its number beside it.
import type { ReactNode } from "react";
import { Link } from "../route";

interface NamedProps {
  to: string;
  name: string;
  id: number;
  children?: ReactNode;
}

export function Named({ to, name, id, children }: NamedProps) {
  return (
    <div className="named">
      <Link to={to} className="clip" title={name}>
        {name}
      </Link>
      <span className="muted num">#{id}</span>
      {children}
    </div>
  );
}
