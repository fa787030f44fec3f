import "./parts.css";

export { Confirmations, confirm } from "./confirm";
export { Command, Copy, copyText } from "./copy";
export { Dialog } from "./dialog";
export { Markdown } from "./markdown";
export type { IconName } from "./icons";
export { Icon } from "./icons";
export type { Item } from "./menu";
export { Menu } from "./menu";
export { Empty, ErrorNote, Skeleton } from "./notes";
export { Chip, Tip } from "./small";
export { Progress, State, isMoving, isOver, stateColour } from "./state";
export type { Tab } from "./tabs";
export { Tabs } from "./tabs";
export { Toasts, toast, toastError } from "./toast";
export { Bytes, Duration, Num, Time } from "./values";
export type { LineError } from "./yaml";
export { YamlEditor } from "./yaml";
