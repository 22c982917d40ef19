"""`make demo`: the main job on a control plane of its own, told in numbered steps and checked as it goes.

`stage` has all that runs, `story` what is done to it, `screen` how it is shown, live on a terminal and in plain
snapshots elsewhere.
"""
