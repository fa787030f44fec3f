// The parts of a comparison, and how many things it takes.
export const tabs = [
  { key: "curves", label: "Curves" },
  { key: "differences", label: "Differences" },
  { key: "parallel", label: "Parallel" },
  { key: "details", label: "Details" },
] as const;
export type CompareTab = (typeof tabs)[number]["key"];
export const most = 50;
