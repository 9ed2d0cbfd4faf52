"""Where loads write to: the port (`port`), one package for each kind of sink, and the choice between them (`registry`)."""
