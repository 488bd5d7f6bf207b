"""From one pair to a million: decode, match and write in parallel, on one device, several, or a Ray cluster.

`run_job` matches pairs (`find_pairs`) as a `Job` says and writes them to a store (`open_store`).
"""
