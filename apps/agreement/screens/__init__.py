"""What the pages print: figures in, words and SVG geometry out."""
