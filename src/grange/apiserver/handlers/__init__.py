"""The verbs: each turns a call into a registry or store operation and its outcome into a response.

Start reading at: ``reads``, ``writes``, ``deletes``; ``application`` holds the table.
"""
