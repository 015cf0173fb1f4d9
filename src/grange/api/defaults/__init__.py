"""What is filled in when a document leaves it out; in place, and twice is the same as once.

Owns: defaults that several kinds share, or that take more than a line.
Never: judgement; whether a document is right is for ``validation``.
Flow: a document that passed ``schema.check`` → the same document, completed.
Concurrency: pure but for the document itself, which the caller owns.
Start reading at: ``podspec``.
"""
