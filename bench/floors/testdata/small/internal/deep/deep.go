package deep

const Zero = 0
