"""The tasks of a pipeline's DAGs.

    batch         plan, load, commit, catch_up
    replay        plan, load of each chunk, verify
    maintenance   plan, compact, expire, remove_orphans
    doctor        look, load of the newest records

Operators are thin: they read Airflow's context, call the core through its ports, log, and hand on. `plan`, `commit` and
`verify` import neither Spark nor pandas. What a plan saves travels between the tasks as its Variable's key; the load's answer
as an XCom, which is JSON of a few hundred bytes, however many partitions there are (`tidegate.core.load.answer`).

What these tasks do not do: fence. A task that Airflow has given up may still be running; its load replaces what it reads and
its commit checks the cursor, so it can be late without harm.
"""
