from shop.cart import total


def invoice(prices):
    return f"invoice: {total(prices)}"
