"""An experiment -> its cells, with every setting resolved and every pool loaded."""
