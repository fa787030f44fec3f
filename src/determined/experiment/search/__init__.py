"""Search methods: pure functions of events. No clock, file or process in here, except a user's own method's files."""
