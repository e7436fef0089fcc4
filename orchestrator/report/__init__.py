"""Make pages and figures from sealed runs: reports, comparisons, captures, studies, figures for papers."""
