// One line of a log. Everything in it is text; colours come from classes, or from numbers read in ansi.ts.
import { memo, useState } from "react";
import { count, moment, utc } from "../../../format";
import type { Color, Style } from "./ansi";
import { segments } from "./ansi";
import { pieces, ranges } from "./marks";
import type { LogLine } from "./useLog";

const longest = 2000;

interface LogRowProps {
  line: LogLine;
  find: RegExp | undefined;
  isCurrent: boolean;
  hasTimes: boolean;
  hasRanks: boolean;
  /** Another attempt began with this line. */
  isNewAttempt: boolean;
  onPick: (id: number) => void;
}

export const LogRow = memo(function LogRow({ line, find, isCurrent, hasTimes, hasRanks, isNewAttempt, onPick }: LogRowProps) {
  const [isWhole, setWhole] = useState(false);
  const isLong = line.text.length > longest;
  const styled = segments(isLong && !isWhole && !isCurrent ? line.text.slice(0, longest) : line.text);
  const text = styled.map((segment) => segment.text).join("");
  const names = ["log-line", levelClass(line.level), line.is_policy && "policy", isCurrent && "current", line.source === "controller" && "controller"];
  return (
    <div className={names.filter(Boolean).join(" ")} title={line.is_policy ? "A log policy matched this line." : undefined}>
      {hasTimes && (
        <button type="button" className="log-time" title={`${utc(moment(line.time))}. Link to this line.`} onClick={() => onPick(line.id)}>
          {clock(line.time)}
        </button>
      )}
      {isNewAttempt && <span className="log-tag">attempt {line.attempt}</span>}
      {hasRanks && <span className="log-tag">{line.rank === null ? "" : `rank ${line.rank}`}</span>}
      <span className="log-text">
        {line.level && <span className="log-level">{line.level} </span>}
        {pieces(styled, ranges(text, find)).map((piece, place) => (
          <Piece key={place} {...piece} />
        ))}
        {isLong && !isWhole && !isCurrent && (
          <button type="button" className="link" onClick={() => setWhole(true)}>
            … {count(line.text.length - longest)} more characters
          </button>
        )}
      </span>
    </div>
  );
});

function Piece({ text, style, isFound }: { text: string; style: Style; isFound: boolean }) {
  const names = styleNames(style);
  const css = ownColours(style);
  const Tag = isFound ? "mark" : "span";
  return (
    <Tag className={names} style={css}>
      {text}
    </Tag>
  );
}

const decorations = ["bold", "faint", "italic", "underline", "strike", "inverse"] as const;

function styleNames(style: Style): string | undefined {
  const names: string[] = decorations.filter((name) => style[name]).map((name) => `ansi-${name}`);
  if (typeof style.color === "number") names.push(`ansi-${style.color}`);
  if (typeof style.background === "number") names.push(`ansi-on-${style.background}`);
  return names.length ? names.join(" ") : undefined;
}

function ownColours(style: Style): { color?: string; backgroundColor?: string } | undefined {
  const own = (color: Color | undefined) => (typeof color === "string" ? color : undefined);
  const color = own(style.color);
  const backgroundColor = own(style.background);
  return color || backgroundColor ? { ...(color && { color }), ...(backgroundColor && { backgroundColor }) } : undefined;
}

function levelClass(level: string | null): string {
  return level ? `level-${level.toLowerCase()}` : "";
}

/** "12:30:05.123", UTC as everywhere. */
function clock(time: string): string {
  return new Date(moment(time)).toISOString().slice(11, 23);
}
