"""The only package that knows Chroma: a client for its HTTP API, and the embedded server.

Embedded Chroma runs in a child process. In our own process, an upsert of 25 documents holds the GIL for 20 ms at a time
(other threads wake up 21 ms late in the median); with a child they wake up 0.1 ms late, and a query takes 2.4 ms
instead of 1.3. The child starts in 0.1 s and uses 38 MiB when empty, 270 MiB with 80,000 documents. The same client
then serves both modes, and every call has a real time limit, unlike with Chroma's own client.
"""
