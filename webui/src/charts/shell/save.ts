// Pictures and tables to take away.

export function download(name: string, content: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  // The download has begun by then; keeping the address would keep the bytes.
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** A file name of a title: letters, digits, dots, dashes. */
export const fileName = (title: string, ending: string): string => `${title.replace(/[^\p{L}\p{N}.]+/gu, "-").replace(/^-+|-+$/g, "") || "chart"}.${ending}`;

export interface Swatch {
  name: string;
  color: string;
  dash?: readonly number[];
}

export interface Picture {
  title: string;
  swatches: readonly Swatch[];
  note: string;
  colors: { bg: string; text: string; muted: string };
}

function swatch(ctx: CanvasRenderingContext2D, one: Swatch, x: number, y: number, ratio: number): void {
  ctx.strokeStyle = one.color;
  ctx.lineWidth = 2 * ratio;
  ctx.setLineDash((one.dash ?? []).map((length) => length * ratio));
  ctx.beginPath();
  ctx.moveTo(x, y);
  ctx.lineTo(x + 16 * ratio, y);
  ctx.stroke();
  ctx.setLineDash([]);
}

/** The canvas of a chart with its title above and its legend and note below, on the background of the page. */
export function framed(canvas: HTMLCanvasElement, picture: Picture, ratio: number): HTMLCanvasElement {
  const whole = document.createElement("canvas");
  const edge = 12 * ratio;
  const font = (size: number, weight = 400) => `${weight} ${size * ratio}px system-ui, sans-serif`;
  const ctx = whole.getContext("2d") as CanvasRenderingContext2D;
  ctx.font = font(12);
  const places: [Swatch, number, number][] = [];
  let [x, row] = [edge, 0];
  for (const one of picture.swatches) {
    const width = ctx.measureText(one.name).width + 36 * ratio;
    if (x > edge && x + width > canvas.width) [x, row] = [edge, row + 1];
    places.push([one, x, row]);
    x += width;
  }
  const top = 40 * ratio;
  const under = top + canvas.height + edge;
  const line = 18 * ratio;
  whole.width = canvas.width + 2 * edge;
  whole.height = under + (places.length ? (row + 1) * line : 0) + (picture.note ? line : 0) + edge;
  ctx.fillStyle = picture.colors.bg;
  ctx.fillRect(0, 0, whole.width, whole.height);
  ctx.textBaseline = "middle";
  ctx.fillStyle = picture.colors.text;
  ctx.font = font(14, 600);
  ctx.fillText(picture.title, edge, 22 * ratio);
  ctx.drawImage(canvas, edge, top);
  ctx.font = font(12);
  for (const [one, left, at] of places) {
    swatch(ctx, one, left, under + (at + 0.5) * line, ratio);
    ctx.fillStyle = picture.colors.text;
    ctx.fillText(one.name, left + 22 * ratio, under + (at + 0.5) * line);
  }
  ctx.fillStyle = picture.colors.muted;
  if (picture.note) ctx.fillText(picture.note, edge, whole.height - edge - line / 2);
  return whole;
}

export function savePng(canvas: HTMLCanvasElement, picture: Picture): void {
  framed(canvas, picture, window.devicePixelRatio || 1).toBlob((blob) => blob && download(fileName(picture.title, "png"), blob), "image/png");
}

export function saveCsv(title: string, text: string): void {
  download(fileName(title, "csv"), new Blob([text], { type: "text/csv" }));
}
