"""The page in a real Chromium. A package, so that one server and one browser serve all its files
that a process runs."""
