// A table with one column per thing compared. Head and first column stay.
import type { ReactNode } from "react";
import { Link } from "../route";
import { Swatch } from "./items";
import type { Item } from "./usecomparison";

export function SideBySide({ items, children, label }: { items: readonly Item[]; children: ReactNode; label: string }) {
  return (
    <div className="side-by-side" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>
            <th className="key">
              <span className="visually-hidden">Name</span>
            </th>
            {items.map((item) => (
              <th key={item.id} scope="col">
                <Link to={item.to} title={item.name}>
                  <Swatch item={item} />
                  <span className="clip">{item.name}</span>
                </Link>
              </th>
            ))}
            <th className="rest" aria-hidden />
          </tr>
        </thead>
        {children}
      </table>
    </div>
  );
}

export function Heading({ title, count }: { title: string; count: number }) {
  return (
    <tr className="heading">
      <th scope="rowgroup" className="key">
        {title}
      </th>
      {/* Across all, so that the line under it is whole. */}
      <td colSpan={count + 1} />
    </tr>
  );
}

export function Line({ name, items, children }: { name: string; items: readonly Item[]; children: (item: Item) => ReactNode }) {
  return (
    <tr>
      <th scope="row" className="key" title={name}>
        {name}
      </th>
      {items.map((item) => children(item))}
      <td className="rest" />
    </tr>
  );
}
