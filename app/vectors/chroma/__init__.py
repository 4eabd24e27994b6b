"""Everything that knows Chroma: a client over its HTTP API, and the embedded server that runs beside ours.

Embedded is a child process: an upsert of 25 documents in our own process holds the interpreter for 20 ms at a time
(other threads wake 21 ms late in the median), through a child 0.1 ms late, for 2.4 ms a query instead of 1.3. The child
starts in 0.1 s and takes 38 MiB empty, 270 MiB with 80,000 documents. One client then serves both modes, and every
call has a real time limit, which the library's client has not.
"""
