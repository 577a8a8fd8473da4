"""What policies of a weight cache keep of a public trace, beside a bound that none can exceed."""
