"""What every sandbox shares: what to hide and to lock, whom to let through, and what was planted.

The sandboxes differ in how they hold; what they must hold is one piece of knowledge and lives here.
"""
