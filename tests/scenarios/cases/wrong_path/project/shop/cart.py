"""What a customer wants to buy."""


def total(prices):
    return sum(prices)
