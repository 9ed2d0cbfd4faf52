"""Where rows go: the port of writers, the registry by kind, and a folder for each kind."""
