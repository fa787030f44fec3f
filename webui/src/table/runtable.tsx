// The table of experiments or trials with everything around it: toolbar, rows, what can be done with those selected, and
// the panel that compares them.
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useKeys } from "../frame";
import { count, plural } from "../format";
import { ErrorNote, Skeleton, toast, toastError } from "../parts";
import { navigate } from "../route";
import { useDensity } from "../style/theme";
import { useBulk } from "./bulk/usebulk";
import { Dock } from "./dock";
import { pageOf } from "./grid/cell";
import type { Cursor } from "./grid/grid";
import { Grid } from "./grid/grid";
import { Nothing } from "./nothing";
import { Layout } from "./rows/layout";
import { download, exported } from "./rows/export";
import { marksOf } from "./rows/marks";
import { useChosen } from "./state/usechosen";
import { useColumns } from "./state/usecolumns";
import { useFill, useNarrow } from "./state/usesize";
import { useSelection } from "./state/useselection";
import { useSparks } from "./state/usesparks";
import type { Viewing } from "./state/useview";
import { useView } from "./state/useview";
import type { Asked, Rows } from "./state/userows";
import { ask, useRows } from "./state/userows";
import "./table.css";
import { Toolbar } from "./toolbar/toolbar";
import type { Column, Kind, Scope, TableRow } from "./types";
import { moved, possible, shown } from "./view/columns";
import { asked } from "./view/filter";
import { clicked } from "./view/sort";
import type { View } from "./view/view";
import { lowered } from "./view/sentence";

interface RunTableProps extends Scope {
  kind: Kind;
}

/** `<RunTable kind="trials" experimentId={7} />`: as high as what is left of the window below its place. */
export function RunTable({ kind, projectId, experimentId }: RunTableProps) {
  const scope = useMemo(() => ({ ...(projectId === undefined ? {} : { projectId }), ...(experimentId === undefined ? {} : { experimentId }) }), [projectId, experimentId]);
  const { columns, isRough, error, retry } = useColumns(kind, scope);
  if (error && !columns) return <ErrorNote error={error} retry={retry} />;
  if (!columns) return <Skeleton lines={10} />;
  return <Loaded kind={kind} scope={scope} columns={columns} isRough={isRough} />;
}

function questionOf(view: View, scope: Scope, columns: readonly Column[]): Asked {
  // In the order of their keys: dragging a column to another place must not be another question.
  const keys = columns.map(({ key }) => key).filter((key) => key !== "spark");
  return {
    columns: keys.sort(),
    sort: view.sort,
    filter: asked(view.filter),
    search: view.search,
    project_id: scope.projectId ?? null,
    experiment_id: scope.experimentId ?? null,
    archived: view.archived,
    group_by: view.group,
  };
}

interface LoadedProps {
  kind: Kind;
  scope: Scope;
  columns: Column[];
  /** The server is still reading: there may be more columns. */
  isRough: boolean;
}

function Loaded({ kind, scope, columns, isRough }: LoadedProps) {
  const viewing = useView(kind, scope);
  const named = useMemo(() => new Map(columns.map((column) => [column.key, column])), [columns]);
  const view = useMemo(() => (isRough ? viewing.view : possible(viewing.view, named)), [viewing.view, named, isRough]);
  const isNarrow = useNarrow();
  const visible = useMemo(() => shown(columns, view, isNarrow), [columns, view.columns, isNarrow]);
  const question = useMemo(() => questionOf(view, scope, visible), [view, scope, visible]);
  const [pages, setPages] = useState<readonly number[]>([0]);
  const rows = useRows(kind, question, pages);
  const { layout, fold } = useLayout(rows);
  const selection = useSelection(kind, question, rows);
  const chosen = useChosen(kind, selection.ids);
  const marks = useMemo(() => marksOf(kind, selection.ids, chosen), [kind, selection.ids, chosen]);
  const bulk = useBulk(kind, (gone) => selection.set(selection.ids.filter((id) => !gone.includes(id))));
  const box = useRef<HTMLDivElement>(null);
  const height = useFill(box);
  const isDense = useDensity() === "dense" || view.dense;
  const { cursor, setCursor } = useCursor(JSON.stringify([view.sort, view.filter, view.search, view.group, view.archived]));
  const inSight = pages.flatMap((page) => Array.from({ length: 200 }, (_, place) => rows.row(page * 200 + place))).filter((row) => row !== undefined);
  const sparks = useSparks(kind, inSight, visible.some(({ key }) => key === "spark"));
  const [exporting, setExporting] = useState("");
  const [isRaised, setRaised] = useState(0);

  const latest = useRef({ rows, selection, cursor, layout });
  latest.current = { rows, selection, cursor, layout };
  const check = useCallback((row: TableRow, offset: number, isRange: boolean) => {
    const { extend, toggle } = latest.current.selection;
    (isRange ? extend : toggle)(row.id, offset);
  }, []);
  useTableKeys(kind, latest, setCursor, () => {
    if (latest.current.selection.ids.length > 1) setRaised((times) => times + 1);
    else toast("Select two or more rows to compare them: x selects the row under the cursor.");
  });
  const [widths, setWidths] = useState(view.widths);
  useEffect(() => setWidths(view.widths), [view.widths]);
  const [filterBy, setFilterBy] = useState<Column>();
  const head = useHeadActs(view, viewing, visible, setWidths, setFilterBy);

  const what = kind === "experiments" ? "experiment" : scope.experimentId === undefined ? "run" : "trial";
  const save = () => {
    const keys = visible.filter(({ key }) => key !== "spark");
    const asking = { ...question, columns: keys.map(({ key }) => key) };
    exported({
      columns: keys,
      ask: (offset, limit) => ask(kind, asking, offset, limit),
      onProgress: (done, total) => setExporting(`CSV: ${count(done)} of ${count(total)} rows`),
    })
      .then((text) => {
        download(`${kind}.csv`, text);
        toast(`Saved ${kind}.csv.`);
      }, toastError)
      .finally(() => setExporting(""));
  };
  const all = rows.total !== undefined && rows.total > 0 && selection.ids.length >= Math.min(rows.total, 500);
  return (
    <div className="run-table" ref={box} style={{ height }}>
      <Toolbar
        viewing={viewing}
        columns={columns}
        named={named}
        shown={visible}
        what={`${what}s`}
        isNarrow={isNarrow}
        status={exporting || (rows.total === undefined ? "" : plural(rows.total, what))}
        onExport={save}
        filterBy={filterBy}
        onFiltered={() => setFilterBy(undefined)}
      />
      <ErrorNote error={rows.error} retry={rows.retry} />
      <Grid
        {...head}
        kind={kind}
        name={kind === "experiments" ? "Experiments" : "Runs"}
        rows={rows}
        columns={visible}
        widths={widths}
        sort={view.sort}
        layout={layout}
        onFold={fold}
        groupTitle={view.group ? lowered(named.get(view.group), view.group) : ""}
        isDense={isDense}
        isNarrow={isNarrow}
        sparks={sparks}
        selected={selection.has}
        marks={marks}
        chosen={selection.ids.length === 0 ? "none" : all ? "all" : "some"}
        cursor={cursor}
        onCursor={setCursor}
        onCheck={check}
        onAll={selection.ids.length ? selection.clear : selection.all}
        onPages={setPages}
      >
        {rows.total === 0 && <Nothing kind={kind} scope={scope} viewing={viewing} columns={named} />}
      </Grid>
      {selection.ids.length > 0 && <Dock kind={kind} selection={selection} chosen={chosen} bulk={bulk} isNarrow={isNarrow} raised={isRaised} />}
    </div>
  );
}

function useLayout(rows: Rows): { layout: Layout; fold: (group: string) => void } {
  const [folded, setFolded] = useState<ReadonlySet<string>>(new Set());
  const fold = useCallback((group: string) => {
    setFolded((now) => {
      const next = new Set(now);
      if (!next.delete(group)) next.add(group);
      return next;
    });
  }, []);
  return { layout: useMemo(() => new Layout(rows.total ?? 0, rows.groups, folded), [rows.version, folded]), fold };
}

/** The row that keys act on. Another order or filter begins at the top again. */
function useCursor(order: string): { cursor: Cursor; setCursor: (offset: number, isQuiet?: boolean) => void } {
  const [cursor, set] = useState<Cursor>({ offset: 0, moves: 0 });
  const first = useRef(order);
  useEffect(() => {
    if (first.current !== order) set({ offset: 0, moves: 0 });
    first.current = order;
  }, [order]);
  const setCursor = useCallback((offset: number, isQuiet = false) => set(({ moves }) => ({ offset, moves: isQuiet ? moves : moves + 1 })), []);
  return { cursor, setCursor };
}

type Latest = { current: { rows: Rows; selection: ReturnType<typeof useSelection>; cursor: Cursor; layout: Layout } };

function useTableKeys(kind: Kind, latest: Latest, setCursor: (offset: number) => void, raise: () => void): void {
  const move = (by: number) => {
    const { cursor, layout } = latest.current;
    // The first press shows where the cursor is; it does not skip the first row.
    if (layout.count) setCursor(cursor.moves === 0 ? cursor.offset : layout.moved(cursor.offset, by));
  };
  const act = (does: (row: TableRow, offset: number) => void) => () => {
    const { rows, cursor } = latest.current;
    const row = rows.row(cursor.offset);
    if (row && cursor.moves > 0) does(row, cursor.offset);
  };
  useKeys({
    j: ["Next row", () => move(1)],
    k: ["Previous row", () => move(-1)],
    x: ["Select the row", act((row, offset) => latest.current.selection.toggle(row.id, offset))],
    X: ["Select up to the row", act((row, offset) => latest.current.selection.extend(row.id, offset))],
    Enter: ["Open the row", act((row) => navigate(pageOf(kind, row)))],
    c: ["Compare what is selected", raise],
    Escape: ["Select nothing", () => latest.current.selection.clear()],
  });
}

/** Numbers that are no measurements: a number of a run, and what has a bar of its own. */
const cool = ["run.id", "run.experiment_id", "run.progress"];

function useHeadActs(view: View, { change }: Viewing, visible: readonly Column[], setWidths: (widths: Record<string, number>) => void, onFilter: (column: Column) => void) {
  const keys = visible.map(({ key }) => key);
  const isHot = useCallback(
    ({ key, type }: Column) => view.heat.includes(key) || (view.heat.includes("*") && type === "number" && !cool.includes(key)),
    [view.heat],
  );
  const latest = useRef({ keys, view, isHot });
  latest.current = { keys, view, isHot };
  return useMemo(
    () => ({
      group: view.group,
      isHot,
      onSort: (column: Column, isAdded: boolean) => change({ sort: clicked(latest.current.view.sort, column, isAdded) }),
      onOrder: (entry: string) => change({ sort: [entry] }),
      onMove: (key: string, place: number) => change({ columns: moved(latest.current.keys, key, place) }),
      onHide: (key: string) => change({ columns: latest.current.keys.filter((one) => one !== key) }),
      onGroup: (group: string | null) => change({ group }),
      onFilter,
      onHeat: (key: string) => {
        const { heat } = latest.current.view;
        const all = heat.includes("*") ? visible.filter(isHot).map((column) => column.key) : heat;
        change({ heat: all.includes(key) ? all.filter((one) => one !== key) : [...all, key] });
      },
      onWidth: (key: string, width: number | undefined, isDone: boolean) => {
        const { [key]: _, ...rest } = latest.current.view.widths;
        const widths = width === undefined ? rest : { ...rest, [key]: width };
        if (isDone) change({ widths }, { push: false });
        else setWidths(widths);
      },
    }),
    [change, view.group, isHot, visible],
  );
}
