"""Cards, what is free of them, where work is placed, and how fragmented the rest is. Pure; arrays are numpy's."""
