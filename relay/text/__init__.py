"""What people read, as text: words, columns, times, puzzles, advice; knows no run, no terminal and no file."""
