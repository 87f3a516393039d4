"""The jobs, a module each, with `main(argv)`."""
