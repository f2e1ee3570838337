"""What the `contract` pass is made of: sum trees, the plan, accumulation chains, and gates on loads."""
