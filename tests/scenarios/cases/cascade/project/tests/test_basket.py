import unittest

from shop.basket import basket


class TestBasket(unittest.TestCase):
    def test_it_tells_the_total(self):
        """With its own name before it."""
        self.assertEqual(basket([100, 50]), "basket: 150")
