"""Where rows go: the port, the registry by kind, and one folder for each kind, with reader, writer and maintenance."""
