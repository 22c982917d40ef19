"""Why is this fleet not as asked?

``gather`` reads everything once, with the user's rights. ``checks`` are small pure functions over those facts, each about one
cause; ``chain`` lists them, most telling first. ``words`` prints what they found. A check never reads, and a gatherer never
judges, so that every finding can be had in a test from facts alone.
"""
