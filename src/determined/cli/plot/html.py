"""A drawing as one HTML page that needs nothing else: the SVG, and a few lines that show what is under the mouse."""

from __future__ import annotations

import html
import json
import math
from typing import Any

from determined.cli.plot.drawing import Panel
from determined.cli.plot.figure import Curve
from determined.cli.plot.shapes import Drawing
from determined.cli.plot.svg import to_svg

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width">
<style>
body {{ margin: 24px auto; max-width: 1000px; background: #ffffff; }}
svg {{ width: 100%; height: auto; }}
polyline[data-title]:hover {{ stroke-width: 4; stroke-opacity: 1; }}
polygon[data-title]:hover, circle[data-title]:hover {{ stroke: #d55e00; stroke-width: 2; }}
#tip {{ position: fixed; display: none; pointer-events: none; background: #1f2937; color: #fff; padding: 8px 10px;
  border-radius: 6px; font: 13px/1.5 system-ui, sans-serif; white-space: pre; }}
#tip i {{ display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 7px; }}
@media (prefers-color-scheme: dark) {{
  body {{ background: #0e1116; }}
  #tip {{ background: #e7ebf0; color: #14181f; }}
}}
</style></head><body>
{svg}<div id="tip"></div>
<script>
const panels = {data};
{script}
</script></body></html>
"""

SCRIPT = """
const svg = document.querySelector('svg'), tip = document.getElementById('tip');
const cross = document.getElementById('cross'), shown = x => Number(x.toPrecision(6)).toString();
function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (high - low > 1) { const mid = (low + high) >> 1; if (xs[mid] < x) low = mid; else high = mid; }
  return x - xs[low] < xs[high] - x ? low : high;
}
for (const title of svg.querySelectorAll('title')) {  // shown at once, not after the browser's second
  title.parentNode.dataset.title = title.textContent; title.remove();
}
function put(event) {
  const right = event.clientX > innerWidth / 2;
  tip.style.left = right ? 'auto' : event.clientX + 16 + 'px';
  tip.style.right = right ? innerWidth - event.clientX + 16 + 'px' : 'auto';
  tip.style.top = event.clientY + 12 + 'px';
}
svg.addEventListener('mousemove', event => {
  const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  const panel = panels.find(p => place.y >= p.top && place.y <= p.bottom && place.x >= p.left && place.x <= p.right);
  const title = panel ? '' : event.target.dataset.title || '';
  cross.style.display = panel ? 'block' : 'none';
  tip.style.display = panel || title ? 'block' : 'none';
  if (!panel) { tip.textContent = title; put(event); return; }
  cross.setAttribute('x1', place.x); cross.setAttribute('x2', place.x);
  cross.setAttribute('y1', panel.top); cross.setAttribute('y2', panel.bottom);
  tip.replaceChildren();
  for (const curve of panel.curves) {
    if (!curve.px.length) continue;
    const i = nearest(curve.px, place.x), line = document.createElement('div'), mark = document.createElement('i');
    mark.style.background = curve.colour;
    const band = curve.low ? '   (' + shown(curve.low[i]) + ' to ' + shown(curve.high[i]) + ')' : '';
    line.append(mark, curve.label + '   ' + shown(curve.y[i]) + band + '   at ' + shown(curve.x[i]));
    tip.append(line);
  }
  put(event);
});
svg.addEventListener('mouseleave', () => { tip.style.display = cross.style.display = 'none'; });
"""


def to_html(drawing: Drawing) -> str:
    """Return the whole page."""
    cross = '<line id="cross" stroke="#9ca3af" stroke-dasharray="3 3" style="display: none" pointer-events="none"/>'
    data = json.dumps([_panel(panel) for panel in drawing.panels], allow_nan=False)
    return PAGE.format(
        title=html.escape(drawing.title),
        svg=to_svg(drawing, extra=cross),
        data=data.replace("<", "\\u003c"),
        script=SCRIPT,
    )


def _panel(panel: Panel) -> dict[str, Any]:
    curves = [_curve(panel, curve) for curve in panel.figure.curves]
    edges = {"top": panel.top, "bottom": panel.bottom, "left": panel.left, "right": panel.left + panel.width}
    return {**edges, "curves": curves}


def _curve(panel: Panel, curve: Curve) -> dict[str, Any]:
    # Of a bundle no single value is under the mouse; the script passes over curves without places.
    pairs = enumerate(zip(curve.x, curve.y, strict=True))
    seen = [] if curve.is_bundle else [i for i, (x, y) in pairs if math.isfinite(x) and math.isfinite(y)]
    band = curve.has_band and curve.low is not None and curve.high is not None
    return {
        "label": curve.label,
        "colour": curve.rgb,
        "px": [round(panel.x(curve.x[i]), 1) for i in seen],
        "x": [curve.x[i] for i in seen],
        "y": [curve.y[i] for i in seen],
        "low": [curve.low[i] for i in seen] if band and curve.low is not None else None,
        "high": [curve.high[i] for i in seen] if band and curve.high is not None else None,
    }
