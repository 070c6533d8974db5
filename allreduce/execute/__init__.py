"""From a schedule to a running collective: lowering to a table of rows, two interpreters of it, and progress."""
