"""Curves: what to draw (`figure`), its axes (`scale`), and drawing it as text, SVG, HTML or PNG."""
