"""Made measurements that the checks of each paper agree with, and twists of them that no check may agree with.

A module a paper has `TWISTS`, their names, and `lines(twist, seed)`, the comparisons that the paper's own code makes of
them: `GOOD` is what agrees, ONE_RUN the same in a single run, NOISE draws that know nothing of their settings.
"""

GOOD, ONE_RUN, NOISE = "good", "one-run", "noise"
RUNS = 3
