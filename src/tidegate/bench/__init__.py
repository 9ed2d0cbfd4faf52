"""`tidegate bench`: what Tidegate costs and gains beside the usual ways of doing the same, measured on one machine.

A comparison is a module with one `COMPARISON`; `catalog` lists them. `suite` and `page` are pure, `stage` has the servers.
"""
