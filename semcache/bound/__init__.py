"""Learning which near questions may share an answer, so that the share of wrong answers served stays under a bound.

Read `neighbourhood` (what is looked at), then `learner` (how it is learned). Pure numpy: no vectors, no clock, no I/O.
"""
