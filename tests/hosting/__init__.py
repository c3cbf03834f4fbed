"""The app as a host runs it. A package, so that one server serves all its files."""
