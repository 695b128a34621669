import unittest

from shop.cart import total


class TestCart(unittest.TestCase):
    def test_a_total_is_the_sum_of_its_prices(self):
        """Nothing is added and nothing is lost."""
        self.assertEqual(total([100, 50]), 150)
