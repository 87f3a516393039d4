"""The jobs that the clock starts: sweep, repair, retirement of epochs, counts."""
