"""The way to the store: the link, what waits on disk, heart-beats, log lines and event files."""
