// Only what differs. What is equal everywhere is one line per section; what stands out from the rest is marked.
import { plural, toNumber } from "../format";
import { Empty } from "../parts";
import { Heading, Line, SideBySide } from "./sidebyside";
import type { Item } from "./usecomparison";
import type { Comparison, Difference } from "./values";
import { bestOf, different, fullText, isSame, marked, sections, usual } from "./values";

export function Differences({ answer, items }: { answer: Comparison; items: readonly Item[] }) {
  const equal = Object.values(answer.equal).reduce((sum, count) => sum + count, 0);
  if (!answer.differences.length) return <Empty>Nothing differs: {plural(equal, "setting")} and values are the same in all {items.length}.</Empty>;
  return (
    <SideBySide items={items} label="Differences">
      {sections.map(({ section, title, one, ...rest }) => {
        const own = answer.differences.filter((difference) => difference.section === section);
        const folded = answer.equal[section] ?? 0;
        if (!own.length && !folded) return null;
        return (
          <tbody key={section}>
            <Heading title={title} count={items.length} />
            {own.map((difference) => (
              <DifferenceLine key={difference.key} difference={difference} items={items} />
            ))}
            {folded > 0 && (
              <tr className="folded">
                <th scope="row" className="key">
                  {plural(folded, one, "more" in rest ? rest.more : undefined)}
                </th>
                <td colSpan={items.length + 1} />
              </tr>
            )}
          </tbody>
        );
      })}
    </SideBySide>
  );
}

export function DifferenceLine({ difference, items }: { difference: Difference; items: readonly Item[] }) {
  const against = usual(difference, items.map(({ id }) => id));
  const best = bestOf(difference, items.map(({ trial }) => trial));
  return (
    <Line name={difference.key} items={items}>
      {(item) => {
        const value = difference.values[String(item.id)];
        const isUsual = against === different || isSame(value, against);
        const [before, own, after] = marked(value, against);
        const isNumber = typeof value === "number" || (typeof value === "string" && toNumber(value) !== undefined);
        const names = [isNumber ? "num" : "", best.has(item.id) ? "best" : "", value === undefined ? "muted" : ""].filter(Boolean).join(" ");
        return (
          <td key={item.id} className={names} title={fullText(value)}>
            {isUsual ? (
              before + own + after
            ) : (
              <>
                {before}
                <mark>{own}</mark>
                {after}
              </>
            )}
            {best.has(item.id) && <span className="visually-hidden"> (best)</span>}
          </td>
        );
      }}
    </Line>
  );
}
