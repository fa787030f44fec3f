// The page's own small pictures: 16 px lines in the colour of the text beside them.
const drawings = {
  home: "M2.5 7.5 8 3l5.5 4.5M4 6.5V13h8V6.5",
  experiments: "M6 2.5v4L2.8 12a1 1 0 0 0 .9 1.5h8.6a1 1 0 0 0 .9-1.5L10 6.5v-4M5 2.5h6M4.5 10h7",
  runs: "M2.5 12.5c2-7 4-8.5 5.5-5s3 2.5 5.5-4",
  models: "M8 2l5.5 3v6L8 14l-5.5-3V5zM2.5 5 8 8l5.5-3M8 8v6",
  queue: "M2.5 4h11M2.5 8h8M2.5 12h5",
  projects: "M2.5 4.5a1 1 0 0 1 1-1h3l1.5 2h5a1 1 0 0 1 1 1v5.5a1 1 0 0 1-1 1h-9.5a1 1 0 0 1-1-1z",
  tasks: "M2.5 13.5v-4h3v4zM6.5 13.5v-11h3v11zM10.5 13.5v-7h3v7z",
  settings: "M2.5 5h5M11 5h2.5M2.5 11h2.5M8.5 11h5M9.25 3.25a1.75 1.75 0 1 1 0 3.5 1.75 1.75 0 0 1 0-3.5M6.75 9.25a1.75 1.75 0 1 1 0 3.5 1.75 1.75 0 0 1 0-3.5",
  search: "M7 2.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9M10.3 10.3l3.2 3.2",
  sun: "M8 5.3a2.7 2.7 0 1 1 0 5.4 2.7 2.7 0 0 1 0-5.4M8 1.5v1.5M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M3.4 12.6l1-1M11.6 4.4l1-1",
  moon: "M13 9.5A5.5 5.5 0 1 1 6.5 3a4.5 4.5 0 0 0 6.5 6.5z",
  copy: "M5.5 5.5h7v8h-7zM10.5 5.5v-3h-7v8h2",
  check: "M3 8.5l3.2 3.2L13 4.5",
  close: "M4 4l8 8M12 4l-8 8",
  warning: "M8 2.5l6 11H2zM8 6.5v3.5M8 11.7v.3",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  down: "M4 6l4 4 4-4",
  right: "M6 4l4 4-4 4",
  up: "M4 10l4-4 4 4",
  left: "M10 4l-4 4 4 4",
  plus: "M8 3v10M3 8h10",
  download: "M8 2.5v7.5M4.8 7.2L8 10.3l3.2-3.1M3 13.3h10",
  expand: "M9.5 2.5h4v4M13.5 2.5L9 7M6.5 13.5h-4v-4M2.5 13.5L7 9",
  link: "M6.5 9.5l3-3M7 4.5l1.5-1.5a2.8 2.8 0 0 1 4 4L11 8.5M9 11.5L7.5 13a2.8 2.8 0 0 1-4-4L5 7.5",
  filter: "M2.5 3.5h11l-4.2 5v4.5l-2.6-1.5V8.5z",
  columns: "M2.5 3h11v10h-11zM6.2 3v10M9.8 3v10",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  play: "M5 3l8 5-8 5z",
  stop: "M4 4h8v8H4z",
  trash: "M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.5 9h6l.5-9",
  edit: "M3 13l.5-3L10.5 3l2.5 2.5-7 7z",
  file: "M4 2.5h5l3 3v8H4zM9 2.5v3h3",
  folder: "M2.5 4.5a1 1 0 0 1 1-1h3l1.5 2h5a1 1 0 0 1 1 1v5.5a1 1 0 0 1-1 1h-9.5a1 1 0 0 1-1-1z",
  external: "M9.5 2.5h4v4M13.5 2.5L7.5 8.5M11.5 9v4.5h-9v-9H7",
  sort: "M5 3v10M5 13l-2.5-2.5M5 13l2.5-2.5M11 13V3M11 3L8.5 5.5M11 3l2.5 2.5",
  compare: "M2.5 13V6M6 13V3M10 13V8M13.5 13V5",
  fork: "M4.5 2.5v11M4.5 9c5 0 7-1 7-4M11.5 2.5a1.2 1.2 0 1 1 0 2.4 1.2 1.2 0 0 1 0-2.4",
} as const;

export type IconName = keyof typeof drawings;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg
      width={size}
      height={size}
      viewBox="0 0 16 16"
      fill="none"
      stroke="currentColor"
      strokeWidth={name === "more" ? 2.2 : 1.4}
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden
      focusable="false"
      style={{ flex: "none" }}
    >
      <path d={drawings[name]} />
    </svg>
  );
}
