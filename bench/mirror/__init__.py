"""One cluster copied to another, beside MirrorMaker 2."""
