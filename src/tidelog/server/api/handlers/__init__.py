"""One file per API, named by its number as its messages are; each is loaded when first asked for."""
