"""`det ui`: every run in a browser. `command` holds what is typed; `determined.server` is what it starts."""
